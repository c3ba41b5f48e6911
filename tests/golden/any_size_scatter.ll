; scatter add
; problem   points=1200  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64
; engine    scatter

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %size1.at = getelementptr i64, ptr %sizes, i64 1
  %size1 = load i64, ptr %size1.at, !invariant.load !{}
  %v1 = icmp ne ptr %p3, %p0
  %v3 = icmp slt i64 %first, %last
  br i1 %v3, label %l2.body, label %l2.end
l2.body:
  %l2.i = phi i64 [ %first, %entry ], [ %l2.next, %l16.end ]
  br i1 %v1, label %w4.then, label %w4.end
w4.then:
  %v6 = icmp slt i64 0, %size1
  br i1 %v6, label %l5.body, label %l5.end
l5.body:
  %l5.i = phi i64 [ 0, %w4.then ], [ %l5.next, %l7.end ]
  %v8 = icmp slt i64 0, 8
  br i1 %v8, label %l7.body, label %l7.end
l7.body:
  %l7.i = phi i64 [ 0, %l5.body ], [ %l7.next, %l7.body ]
  %v9 = mul i64 %l5.i, 8
  %v10 = add i64 %v9, %l7.i
  %v11 = getelementptr float, ptr %p0, i64 %v10
  %v12 = load <8 x float>, ptr %v11, align 4
  %v13 = getelementptr float, ptr %p3, i64 %v10
  store <8 x float> %v12, ptr %v13, align 4
  %l7.next = add nuw nsw i64 %l7.i, 8
  %v14 = icmp slt i64 %l7.next, 8
  br i1 %v14, label %l7.body, label %l7.end
l7.end:
  %l5.next = add nuw nsw i64 %l5.i, 1
  %v15 = icmp slt i64 %l5.next, %size1
  br i1 %v15, label %l5.body, label %l5.end
l5.end:
  br label %w4.end
w4.end:
  %v17 = icmp slt i64 0, 4
  br i1 %v17, label %l16.body, label %l16.end
l16.body:
  %l16.i = phi i64 [ 0, %w4.end ], [ %l16.next, %w30.end ]
  %v18 = getelementptr i64, ptr %p1, i64 %l16.i
  %v19 = load i64, ptr %v18
  %v20 = icmp slt i64 %v19, 0
  %v21 = add i64 %v19, %size1
  %v22 = select i1 %v20, i64 %v21, i64 %v19
  %v23 = icmp sle i64 0, %v22
  %v24 = icmp slt i64 %v22, %size1
  %v25 = and i1 %v23, %v24
  %v26 = icmp sge i64 %v22, 0
  %v27 = and i1 %v25, %v26
  %v28 = icmp slt i64 %v22, %size1
  %v29 = and i1 %v27, %v28
  br i1 %v29, label %w30.then, label %w30.end
w30.then:
  %v32 = icmp slt i64 0, 8
  br i1 %v32, label %l31.body, label %l31.end
l31.body:
  %l31.i = phi i64 [ 0, %w30.then ], [ %l31.next, %l31.body ]
  %v33 = mul i64 %v22, 8
  %v34 = add i64 %v33, %l31.i
  %v35 = getelementptr float, ptr %p3, i64 %v34
  %v36 = load <8 x float>, ptr %v35, align 4
  %v37 = mul i64 %l16.i, 8
  %v38 = add i64 %v37, %l31.i
  %v39 = getelementptr float, ptr %p2, i64 %v38
  %v40 = load <8 x float>, ptr %v39, align 4
  %v41 = fadd contract <8 x float> %v36, %v40
  %v42 = getelementptr float, ptr %p3, i64 %v34
  store <8 x float> %v41, ptr %v42, align 4
  %l31.next = add nuw nsw i64 %l31.i, 8
  %v43 = icmp slt i64 %l31.next, 8
  br i1 %v43, label %l31.body, label %l31.end
l31.end:
  br label %w30.end
w30.end:
  %l16.next = add nuw nsw i64 %l16.i, 1
  %v44 = icmp slt i64 %l16.next, 4
  br i1 %v44, label %l16.body, label %l16.end
l16.end:
  %l2.next = add nuw nsw i64 %l2.i, 1
  %v45 = icmp slt i64 %l2.next, %last
  br i1 %v45, label %l2.body, label %l2.end
l2.end:
  ret void
}
